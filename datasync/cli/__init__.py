"""The command line: one thin module per command; only here are settings turned into text and errors into exit codes."""
