"""`python -m phylatent`."""

from phylatent.cli import main

if __name__ == "__main__":
    main()
