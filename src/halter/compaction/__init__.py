"""Conversations that outgrow their model's window: what is old is trimmed and summarised, for the model alone."""

from halter.compaction.settings import TEMPLATE as TEMPLATE
from halter.compaction.settings import Compaction as Compaction
