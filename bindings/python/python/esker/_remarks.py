"""Remarks of the engine as records of the logger `esker`."""


def tell(level: int, remark: str) -> None:
    # Programs without remarks do not pay for the import.
    import logging

    logger = logging.getLogger("esker")
    if not logger.handlers:
        # As libraries do: without a handler of the program's, nothing is printed.
        logger.addHandler(logging.NullHandler())
    logger.log(level, "%s", remark)
