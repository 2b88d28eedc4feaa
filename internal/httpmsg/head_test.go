package httpmsg

import "testing"

func TestDelAtKeepsTheNextValueReachable(t *testing.T) {
	var h Head
	h.Add([]byte("cookie"), []byte("a"))
	h.Add([]byte("cookie"), []byte("b"))
	h.DelAt(0)
	if got := string(h.Get(Cookie)); got != "b" {
		t.Fatalf("Get after DelAt(first) = %q, want b", got)
	}
	h.Del(Cookie)
	if h.Has(Cookie) || h.Live() != 0 {
		t.Fatalf("Has %v, Live %d after Del, want false, 0", h.Has(Cookie), h.Live())
	}
}

func TestSetReplacesAllValues(t *testing.T) {
	var h Head
	h.Add([]byte("x-request-id"), []byte("1"))
	h.Add([]byte("x-request-id"), []byte("2"))
	h.Set(XRequestID, []byte("3"))
	n := 0
	for i := range h.Len() {
		if _, _, v, ok := h.Field(i); ok {
			n++
			if string(v) != "3" {
				t.Errorf("value %q left", v)
			}
		}
	}
	if n != 1 {
		t.Fatalf("%d values, want 1", n)
	}
}

func TestCopyFromIsIndependent(t *testing.T) {
	var a, b Head
	a.SetPath([]byte("/x"))
	a.Add([]byte("k"), []byte("v"))
	b.CopyFrom(&a)
	a.Reset()
	a.SetPath([]byte("/changed"))
	if v, _ := b.Value("k"); string(b.Path()) != "/x" || string(v) != "v" {
		t.Fatalf("copy changed with its source: %q %q", b.Path(), v)
	}
}

func TestReusedHeadDoesNotAllocate(t *testing.T) {
	var h Head
	name, value := []byte("x-some-name"), []byte("value")
	if n := testing.AllocsPerRun(100, func() {
		h.Reset()
		for range 12 {
			h.Add(name, value)
		}
		h.Set(XRequestID, value)
	}); n != 0 {
		t.Fatalf("%v allocations a head, want 0", n)
	}
}

func TestAppendCommaJoinsAndStaysOnTheWire(t *testing.T) {
	var h Head
	h.AddString(XForwardedFor, "")
	h.AppendComma(XForwardedFor, []byte("1.1.1.1"))
	h.AppendComma(XForwardedFor, []byte("2.2.2.2"))
	h.AppendComma(Via, []byte("x"))
	h.AddName("x-a", []byte("1"))
	if !h.AppendNamed("x-a", []byte("2")) {
		t.Error("AppendNamed did not find the field")
	}
	const want = "x-forwarded-for: 1.1.1.1,2.2.2.2\r\nvia: x\r\nx-a: 1,2\r\n"
	if got := string(h.AppendWire(nil, Other, Other)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
