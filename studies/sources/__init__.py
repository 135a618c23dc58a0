"""The figures, tables and claims of the sources that rmtbase starts from, made again beside the null."""
