module sluice

go 1.26

require golang.org/x/net v0.55.0
