#!/bin/sh
# Which commit broke it? $1 is the command that must succeed.
git bisect start
git bisect bad
git bisect good "$2"
git bisect run sh -c "$1"
