module sluice

go 1.26

require golang.org/x/sys v0.45.0
