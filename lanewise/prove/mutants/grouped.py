"""Wrong kernels of `grouped_linear`."""

from lanewise.prove.mutants.mutant import Mutant, of

__all__ = ["MUTANTS"]

_MODULE = "kernels.gpu.grouped"
_ALONE, _ORDERED = "pair by pair", "in order"

MUTANTS: tuple[Mutant, ...] = (
    *of(
        "grouped: experts", _MODULE, "grouped_linear",
        ("expert", "a row goes to the next expert", "tl.where(known, expert, 0).to(tl.int64)", "tl.where(known, (expert + 1) % experts, 0).to(tl.int64)"),
        ("expert", "every row goes to the first expert", "tl.where(known, expert, 0).to(tl.int64)", "tl.where(known, 0, 0).to(tl.int64)"),
        ("bound by one", "there is an expert more", "known = (expert >= 0) & (expert < experts)", "known = (expert >= 0) & (expert <= experts)", "bad"),
        ("guard", "an id below 0 is an expert's", "known = (expert >= 0) & (expert < experts)", "known = expert < experts", "bad", _ALONE),
        ("expert", "rows of nobody are numbers", "_gathered(tree(totals, t, PARTS, STRANDS), W, GATED, MMA), float(\"nan\"))", "_gathered(tree(totals, t, PARTS, STRANDS), W, GATED, MMA), 0.0)", "bad"),
        ("address", "a panel is the next one's", "* panels + panel) * blocks * RECORD", "* panels + (panel + 1) % panels) * blocks * RECORD", "n=17"),
        ("stride", "ids lie side by side", "(unit % top).to(tl.int64) * ids_col", "(unit % top).to(tl.int64)", "spaced", _ALONE),
        ("stride", "rows of ids lie side by side", "(unit // top).to(tl.int64) * ids_row", "(unit // top).to(tl.int64) * top", "spaced", _ALONE),
        ("address", "every pair has a row of its own", "row = unit if OWN else unit // top", "row = unit", "tokens=2", "top=2", _ALONE),
        ("address", "pairs share their token's first row", "row = unit if OWN else unit // top", "row = unit // top", "own", _ALONE),
        ("address", "a row's place in its octet is the first", "first = 0 if MMA else row % 8", "first = 0", "tokens=5", _ALONE),
        ("address", "an octet is the next one's", "before = octet.to(tl.int64) * blocks", "before = octet.to(tl.int64) * (blocks - 1)", "tokens=5"),
        ("mask of a store", "places without a pair are stored", "there = pair >= 0", "there = pair >= -1", _ORDERED),
        ("address", "a pair is stored in the next one's place", "pair = unit.to(tl.int64) + r * 0", "pair = (unit.to(tl.int64) + 1) + r * 0", _ALONE),
        ("operand dropped", "the router's weight is left out", "mask=there, other=0.0).to(tl.float32)", "mask=there, other=0.0).to(tl.float32) * 0 + 1", "weights="),
        ("stride", "a token's first weight serves all", "pair % top * weights_col, mask=there", "pair % top * 0, mask=there", "weights=", "top=2"),
        ("stride", "all tokens have the first one's weights", "weights + pair // top * weights_row", "weights + pair // top * 0", "weights=", "tokens=2"),
    ),
    *of(
        "grouped: loops", _MODULE, "grouped_linear",
        ("tail of k", "the last tile is left out", "        for i in tl.static_range(TILES):\n            if i + AHEAD < TILES:", "        for i in tl.static_range(TILES - 1):\n            if i + AHEAD < TILES:", "k=768"),
        ("address", "activations of the first block", "_strand(totals, held, i, w_at, i * W + side, blocks", "_strand(totals, held, i, w_at, side + 0 * i, blocks", "k=2304"),
        ("tail of k", "blocks with a tail pass for whole", "BLOCKS=blocks if blocks % wide == 0 else 0", "BLOCKS=blocks", "k=768"),
    ),
    *of(
        "grouped: order", "kernels.gpu.grouped_order", "grouped_linear",
        ("expert", "ids that are no expert's are the last one's", "torch.where((flat < 0) | (flat >= experts), experts, flat)", "flat.clamp(0, experts - 1)", "bad", _ORDERED),
        ("bound by one", "an octet has nine places", "whole = (rows + 7) // 8", "whole = (rows + 8) // 9", "tokens=5"),
        ("order of sums", "pairs of an expert are in another order", "stable=True)", "stable=True, descending=True)", _ORDERED),
        ("bound by one", "an octet holds a row less", ".clamp_(0, 8)\n", ".clamp_(0, 7)\n", _ORDERED),
        ("address", "octets belong to the expert behind", "right=True).clamp_(max=experts)", "right=True).add_(1).clamp_(max=experts)", _ORDERED),
        words=(_ORDERED,),
    ),
)  # fmt: skip
