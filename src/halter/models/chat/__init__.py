"""The wire format of chat completions: OpenAI's, Azure's, and that of many other servers."""
