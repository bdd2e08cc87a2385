"""What every test shares; keep it small."""

from hypothesis import HealthCheck, settings

# Machines are shared: an example may be slow for reasons of its neighbours. Examples are the same
# in every run, so that the gate's verdict is too.
settings.register_profile(
    "gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gate")
