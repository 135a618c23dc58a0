"""The terminal: options, output, tables, signals and exit codes that commands share."""
