# held_list.sh: what lies below $base/weights (see weights.sh), for the probe and for held.sh.

list_weights() { # lines for weights.py: v KIND VERSION; r RECORD; s SIZE MTIME ./FILE; p SIZE PLACE
  cd "$base/weights" 2>/dev/null || return 0
  for kind in complete verified; do
    for m in ".$kind"/*/*; do
      [ -f "$m" ] || continue
      echo "v $kind ${m#".$kind"/}"
      sed 's/^/r /' "$m"
      (cd "${m#".$kind"/}" 2>/dev/null && find . -type f -exec stat -c 's %s %Y %n' {} +)
    done
  done
  find .partial -type f ! -path '*/.*/*' ! -name '.*' -exec stat -c 'p %s %n' {} + 2>/dev/null
  return 0
}
