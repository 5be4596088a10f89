"""What a chat model writes and reads beyond plain text: reasoning, tool calls, earlier turns."""
