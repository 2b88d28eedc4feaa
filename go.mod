module sluice

go 1.26

require (
	golang.org/x/net v0.55.0
	golang.org/x/sys v0.45.0
)
