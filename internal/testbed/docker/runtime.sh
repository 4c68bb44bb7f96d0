#!/bin/sh
# runc for a machine without CAP_SYS_RESOURCE: the kernel lets nobody there lower
# an OOM score or hand the capability on, and Docker asks for both.
previous=
for arg in "$@"; do
	case $previous in
	--bundle) file=$arg/config.json ;;
	--process) file=$arg ;;
	*) file= ;;
	esac
	if [ -n "$file" ]; then
		sed -i -E 's/"oomScoreAdj":-[0-9]+/"oomScoreAdj":0/; s/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$file"
	fi
	previous=$arg
done
exec runc "$@"
