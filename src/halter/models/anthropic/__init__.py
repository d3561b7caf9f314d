"""Anthropic's Messages."""

from halter.models.anthropic.model import Anthropic as Anthropic
