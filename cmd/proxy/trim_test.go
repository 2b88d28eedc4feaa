package main

import (
	"testing"
)

func TestOnlyUnwritableMappingsOfTheBinaryAreTrimmed(t *testing.T) {
	for _, x := range []struct {
		line string
		ok   bool
	}{
		{"00400000-0105d000 r-xp 00000000 fe:00 10010963                           /bin/proxy", true},
		{"0105d000-02032000 r--p 00c5d000 fe:00 10010963                           /bin/proxy", true},
		{"02032000-020d3000 rw-p 01c32000 fe:00 10010963                           /bin/proxy", false},
		{"0105d000-02032000 r--p 00c5d000 fe:00 10010963                           /bin/other", false},
		{"3ea125400000-3ea125c00000 rw-p 00000000 00:00 0", false},
		{"7ffe-7fff r-xp 00000000 00:00 0                          [vdso]", false},
		{"", false},
	} {
		from, to, ok := fileMapping(x.line, "/bin/proxy")
		if ok != x.ok || ok && from >= to {
			t.Errorf("%q: %x-%x %v", x.line, from, to, ok)
		}
	}
	if err := trim(); err != nil {
		t.Error(err)
	}
}
