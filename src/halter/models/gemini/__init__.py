"""Google's Gemini API."""

from halter.models.gemini.model import Gemini as Gemini
