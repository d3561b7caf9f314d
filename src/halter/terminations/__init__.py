"""When a team has said enough: values that combine with `&` and `|`."""

from halter.terminations.between_turns import HandoffTo as HandoffTo
from halter.terminations.between_turns import MaxMessages as MaxMessages
from halter.terminations.between_turns import Source as Source
from halter.terminations.between_turns import StopMessage as StopMessage
from halter.terminations.combining import Look as Look
from halter.terminations.combining import Termination as Termination
from halter.terminations.combining import View as View
from halter.terminations.inside_turns import External as External
from halter.terminations.inside_turns import Function as Function
from halter.terminations.inside_turns import TextMention as TextMention
from halter.terminations.inside_turns import Timeout as Timeout
from halter.terminations.inside_turns import TokenUsage as TokenUsage
