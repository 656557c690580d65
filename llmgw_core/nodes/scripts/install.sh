# install.sh STATE PACKAGE: puts a Python package into a venv of llmgw's own, STATE/engines/PACKAGE.
# Built aside and renamed, so that what is found there is whole. Lines "@@error SENTENCE" and
# "@@version VERSION" are for provision.py; everything else is progress.

give_up() {
  rm -rf "$new"
  printf '@@error %s\n' "$*"
  exit 1
}

find_python() { # -> $python
  for python in python3 python3.13 python3.12 python3.11 python3.10 python3.9 "$HOME/.local/bin/python3"; do
    python=$(command -v "$python") && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && return
  done
  python=
}

make_venv() { # -> lender, the Python whose pip works for the venv where that has none
  if "$python" -m venv "$new" >"$new.log" 2>&1; then
    lender=
  elif rm -rf "$new" && "$python" -m pip --version >/dev/null 2>&1 \
    && "$python" -m venv --without-pip "$new" >>"$new.log" 2>&1; then
    # no ensurepip, as on Debian without python3-venv, but a pip that can install elsewhere
    lender=$python
  else
    cat "$new.log"
    why=$(cat "$new.log")
    rm -f "$new.log"
    case $why in
      *'No space left'*) give_up "the disk is full at $base; free some space there" ;;
    esac
    give_up "$python cannot make a venv on the node; install its venv module there (Debian and Ubuntu: apt install python3-venv)"
  fi
  rm -f "$new.log"
}

run_pip() {
  if [ -n "$lender" ]; then
    "$lender" -m pip --python "$new/bin/python" "$@"
  else
    "$new/bin/python" -m pip "$@"
  fi
}

version_in() { # VENV -> prints the version, where the package can be imported
  (cd / && "$1/bin/python" -c "import $package, importlib.metadata as m; print(m.version('$package'))")
}

explain() { # what pip said -> one sentence
  case $1 in
    *'No space left'*) echo "the disk is full at $base; free some space there" ;;
    *'No matching distribution'* | *'Could not find a version'*)
      case $1 in
        *'Max retries'* | *Retrying* | *'name resolution'* | *'Connection refused'* | *timed\ out*)
          echo "pip on the node cannot reach its package index; check the node's network, or index-url in its pip.conf" ;;
        *) echo "the node's package index has no $package for $("$python" -V 2>&1) on $(uname -m)" ;;
      esac
      ;;
    *'name resolution'* | *'Max retries'* | *'Network is unreachable'*)
      echo "pip on the node cannot reach its package index; check the node's network, or index-url in its pip.conf" ;;
    *) echo "pip could not install $package on the node: $(printf '%s\n' "$1" | grep -v '^$' | tail -n 1)" ;;
  esac
}

main() {
  need_base "$1"
  package=$2
  final=$base/engines/$package
  new=$base/engines/.new.$package
  if [ -e "$final/.ready" ] && version=$(version_in "$final" 2>/dev/null); then
    printf '@@version %s\n' "$version"
    return
  fi
  rm -rf "$new" "$base/engines/.old.$package"
  mkdir -p "$base/engines" || give_up "cannot create $base/engines"
  find_python
  [ -n "$python" ] || give_up "no Python 3.9 or newer on the node; install python3 there"
  echo "making a venv with $("$python" -V 2>&1) in $final"
  make_venv
  echo "installing $package"
  run_pip install --disable-pip-version-check --no-input --progress-bar off "$package" >"$new/.pip" 2>&1 &
  pip=$!
  tail -n +1 -f "$new/.pip" &
  shown=$!
  wait "$pip"
  status=$?
  nap 0.2
  kill "$shown" 2>/dev/null
  [ $status -eq 0 ] || give_up "$(explain "$(tail -c 4000 "$new/.pip")")"
  rm -f "$new/.pip"
  version=$(version_in "$new" 2>"$new/.err") \
    || give_up "$package was installed but cannot be imported on the node: $(grep -v '^$' "$new/.err" | tail -n 1)"
  : >"$new/.ready" || give_up "the disk is full at $base; free some space there"
  [ ! -e "$final" ] || mv "$final" "$base/engines/.old.$package"
  mv "$new" "$final" || give_up "cannot rename $new to $final"
  rm -rf "$base/engines/.old.$package"
  printf '@@version %s\n' "$version"
}

main "$@"
exit
