"""Makes a NIXL agent with its UCX backend, in a process of its own: native code may not return."""

PROBE_PASSED = "baton-nixl-probe: passed"


def main() -> None:
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    nixl_agent("baton-doctor", nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    print(PROBE_PASSED, flush=True)


if __name__ == "__main__":
    main()
