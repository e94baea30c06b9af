"""What each command does: call one function of the library, print what it made and what to run next."""
