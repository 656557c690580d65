# lease_verbs.sh VERB STATE ARG…: what is done about a lease (see lease.sh) outside the live stream.

take() { # ID TOKEN LIMIT HOW WORD…: says whose it was, and whose it is now
  take_lease "$@"
  case $lease in
    none) fail 74 "cannot write $base/lease: No space left on device, or no permission" ;;
    *) read_lease && tell_lease "$lease" ;;
  esac
}

give_back() { # ID TOKEN: only what this very session took
  [ -e "$root/.lock" ] || return 0
  take_lock
  if read_lease && [ "$l_id $l_token" = "$1 $2" ]; then
    rm -f "$base/lease" "$base/lease.at.$1"
  fi
  drop_lock
}

main() {
  verb=$1
  need_base "$2"
  root=$base/run
  shift 2
  case $verb in
    take | give_back) "$verb" "$@" ;;
    *) fail 64 "unknown verb $verb" ;;
  esac
}

main "$@"
exit
