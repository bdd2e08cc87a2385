"""What one request takes, in the units the workers count in."""

from dataclasses import dataclass

from wire.messages import Route, WorkerCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A Route in tokens, KV blocks and bytes. Blocks are counted as the engine's admission does:
    choices share the prompt's full blocks, and the last token drawn never gets any KV."""

    prompt_tokens: int
    choices: int
    context_tokens: int
    """What its sequences add to a decode batch's context at first."""
    prompt_blocks: int
    begin_blocks: int
    """For the prompt and the first output token of each choice: what D reserves."""
    end_blocks: int
    """For the longest answer it may give; generation stops at the model's context."""
    transfer_bytes: int

    @classmethod
    def of(cls, route: Route, card: WorkerCard) -> "Demand":
        """By the layout and context of `card`, which are all workers'."""
        layout, prompt, choices = card.layout, route.prompt_tokens, route.choices
        last = min(prompt + route.max_tokens, card.max_context) - 1
        shared = prompt // layout.block_tokens
        prompt_blocks = layout.blocks_for(prompt)
        return cls(
            prompt_tokens=prompt,
            choices=choices,
            context_tokens=prompt * choices,
            prompt_blocks=prompt_blocks,
            begin_blocks=shared + choices * (layout.blocks_for(min(prompt + 1, last)) - shared),
            end_blocks=shared + choices * (layout.blocks_for(last) - shared),
            transfer_bytes=prompt_blocks * layout.block_bytes,
        )
