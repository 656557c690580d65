# held.sh VERB STATE …: the versions that a node holds: listed, removed, and received over stdin.

list() {
  list_weights
}

remove() { # MODEL/VERSION HOLDER: nothing of it is left, half files neither
  weights_of "$1"
  [ -e "$whole" ] || [ -e "$part" ] || [ -e "$complete" ] || [ -e "$verified" ] || return 0
  hold once || fail 75 "$1 is being fetched on the node; stop that first"
  trap let_go EXIT
  need_lease "$2"
  # first what says that it is there
  rm -f "$complete" "$verified" || fail 74 "cannot remove $complete"
  # with what removals that were killed left
  rm -rf "$base"/weights/.partial/.gone.*
  gone=$base/weights/.partial/.gone.$$
  if [ -e "$whole" ]; then
    mv "$whole" "$gone" && rm -rf "$gone" || fail 74 "cannot remove $whole"
  fi
  rm -rf "$part" || fail 74 "cannot remove $part"
  rmdir "${whole%/*}" "${part%/*}" "${complete%/*}" "${verified%/*}" 2>/dev/null
  return 0
}

receive() { # MODEL/VERSION FILE SIZE SHA256: what comes on stdin goes to the half file's end
  weights_of "$1"
  name=$(decode "$2")
  usable_file "$name" || fail 64 "$name is no path below a version"
  if is_verified "$name" "$3" "$4"; then
    echo "@@at $3"
    return
  fi
  hold once || fail 75 "$1 is being written on the node by another"
  trap let_go EXIT
  half=$part/$4
  size_of "$half"
  [ "$size" -le "$3" ] || size=0
  [ "$size" -gt 0 ] || : >"$half" || fail 74 "cannot write $half"
  room_for $(($3 - size)) 0 "$1" || fail 28 "$why"
  echo "@@at $size"
  cat >>"$half" || {
    room_for 1048576 0 "$1" || fail 28 "$why"
    fail 74 "cannot write $half"
  }
  size_of "$half"
  echo "@@have $size"
}

main() {
  verb=$1
  need_base "$2"
  shift 2
  case $verb in
    list | remove | receive) "$verb" "$@" ;;
    *) fail 64 "unknown verb $verb" ;;
  esac
}

# one line, with nothing behind it: what follows on stdin is a file's
main "$@"; exit
