"""`python -m holdfast` is `holdfast`."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
