#!/bin/bash
# files.sh [PATTERN...]: the text files of the tree in the current folder, as git sees them (new ones
# too), or all outside build/ where git cannot say. Patterns are shell patterns for the path.
set -euo pipefail

if top=$(git rev-parse --show-toplevel 2>/dev/null) && [ "$top" = "$PWD" ]; then
  list() { git ls-files --cached --others --exclude-standard -- "$@"; }
  list "$@" | sort -u | while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done
else
  find . \( -name .git -o -path ./build -o -path ./.cache -o -name __pycache__ \) -prune -o \
    -type f -print | sed 's|^\./||' | sort | while IFS= read -r file; do
    [ $# -gt 0 ] || { echo "$file" && continue; }
    for pattern; do
      # shellcheck disable=SC2254
      case "$file" in $pattern) echo "$file" && break ;; esac
    done
  done
fi
