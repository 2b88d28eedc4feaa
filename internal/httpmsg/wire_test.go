package httpmsg

import "testing"

func TestEveryKnownNameIsFound(t *testing.T) {
	for id := Other + 1; id < numIDs; id++ {
		if got := LookupString(id.Name()); got != id {
			t.Errorf("%q is found as %d, want %d", id.Name(), got, id)
		}
	}
	for _, n := range []string{"", "x", "hosu", "hos", "x-b3-sampleD"} {
		if got := LookupString(n); got != Other {
			t.Errorf("%q is found as %d", n, got)
		}
	}
}

func TestAppendWireWritesLiveFieldsInOrder(t *testing.T) {
	var h Head
	h.SetPath([]byte("/"))
	h.AddLine([]byte("X-Mixed-Case-Name: v1\r\n"), 17)
	h.AddReceived([]byte("Host"), []byte("evil"))
	h.Add([]byte("dead"), []byte("v2"))
	h.SetAuthority([]byte("a"))
	h.AddString(XRequestID, "")
	h.AddLine([]byte("TE: trailers\r\n"), 2)
	h.Add([]byte("changed"), []byte("old"))
	h.AddID(Via, []byte("p"))
	h.DelName("dead")
	h.SetValueAt(5, []byte("new"))
	want := "x-mixed-case-name: v1\r\nx-request-id: \r\nte: trailers\r\nchanged: new\r\nvia: p\r\n"
	if got := string(h.AppendWire(nil, Host, Other)); got != want {
		t.Errorf("got %q", got)
	}
	if got := string(h.AppendWire(nil, TE, Via)); got != "x-mixed-case-name: v1\r\nhost: evil\r\nx-request-id: \r\nchanged: new\r\n" {
		t.Errorf("got %q", got)
	}
	if !h.Has(TE) || string(h.Get(Host)) != "evil" {
		t.Error("received names have no ID")
	}
}

func TestNamesOfAllLengthsBecomeLowerCase(t *testing.T) {
	const name = "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_!#abcxyz09"
	for n := 1; n <= len(name); n++ {
		var h Head
		h.AddReceived([]byte(name[:n]), []byte("ABC"))
		_, got, value, _ := h.Field(0)
		for i := range got {
			c := name[i]
			if 'A' <= c && c <= 'Z' {
				c += 32
			}
			if got[i] != c {
				t.Fatalf("%q of %q", got, name[:n])
			}
		}
		if string(value) != "ABC" {
			t.Fatalf("value became %q", value)
		}
	}
}
