"""Facts: what an agent learns of whom it talks with, and knows in later conversations."""

from halter.facts.facts import Facts as Facts
from halter.facts.learning import Learned as Learned

__all__ = ["Facts", "Learned"]
