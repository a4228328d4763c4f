"""The prompt of a terminal: questions and commands while a film plays. One owner of the screen for both."""
