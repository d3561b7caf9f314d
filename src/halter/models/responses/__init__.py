"""OpenAI's Responses."""

from halter.models.responses.model import OpenAIResponses as OpenAIResponses
