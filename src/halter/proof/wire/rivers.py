"""An answer that looks real, for demonstrations: about 400 words on rivers."""

RIVERS = """\
A river begins almost nowhere. High on a hillside, rain sinks into moss and thin soil, finds a layer of \
clay or rock that will not let it pass, and seeps out again a little lower as a spring. The trickle has \
no plan. It follows the steepest way down, a few grains of sand at a time, and every drop that follows \
finds the path slightly easier than the one before.

Within a few kilometres the trickle has company. Other springs join it, each carrying the water of its \
own small valley, and the stream becomes strong enough to move pebbles, then stones. In its upper course \
a river mostly cuts downwards. It makes narrow valleys with steep sides, waterfalls where hard rock lies \
over soft, and deep pools where the falling water grinds the bed like a drill. Trout like these reaches, \
because cold and tumbling water holds a great deal of oxygen.

Lower down the slope eases, and the river changes its habits. It has more water now, but less hurry, and \
it begins to cut sideways instead of down. The outside of every bend is worn away, while the inside, \
where the current is slow, collects sand and gravel. A bend grows into a loop, and the loop wanders \
across the plain over the centuries until, one wet spring, the river breaks through its narrow neck and \
leaves the old channel behind as a quiet, curved lake.

The plain itself is the river's work. Each flood spreads a thin sheet of mud over the fields and then \
withdraws, and this mud, renewed year after year, is among the richest soil on earth. The first cities \
stood beside such rivers: the Nile, the Euphrates, the Indus, the Yellow River. People came for the soil \
and the fish, stayed for the trade, and learned arithmetic in order to share out the water.

At last the river meets the sea, and stops. Without speed it can carry nothing, so it drops what it \
brought, the finest grains last. Where tides are weak the load builds up into a delta, a fan of islands \
and reed beds that grows into the sea; where they are strong it is swept away, and the mouth stays wide \
and open.

But the water does not end there. The sun lifts it from the sea, the wind carries it inland, and \
somewhere high on a hillside it begins to rain. The river you stand beside is never the same water \
twice, and yet, for ten thousand years, it has been the same river."""
