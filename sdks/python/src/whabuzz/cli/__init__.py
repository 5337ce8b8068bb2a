"""The command line, which needs the extra `cli`."""


def run() -> None:
    """The program `whabuzz`."""
    try:
        from whabuzz.cli.main import main
    except ModuleNotFoundError as missing:
        raise SystemExit(
            f"The command line needs {missing.name}: install it with `pip install {missing.name}`."
        ) from None
    main()
