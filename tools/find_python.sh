# Sourced by the commands beside it: find_python prints the Python that runs them.

# The first of `python3` and the newer ones with a name of their own that is 3.11 or newer.
find_python() {
  local candidate
  for candidate in python3 python3.12 python3.11 python3.13 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  printf 'This needs Python 3.11 or newer; there is none on PATH or among pyenv'\''s versions.\n' >&2
  return 1
}
