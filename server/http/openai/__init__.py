"""OpenAI's API: completions and chat."""
