"""Speed on processors, beside other engines."""
