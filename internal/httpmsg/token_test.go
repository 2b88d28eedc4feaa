package httpmsg

import "testing"

func TestNamesAndValuesThatStayOneField(t *testing.T) {
	for s, want := range map[string]bool{"x-a": true, "X_1.~": true, "": false, "a b": false, "a:": false, "a\n": false, "é": false} {
		if IsName(s) != want {
			t.Errorf("IsName(%q) is %v", s, !want)
		}
	}
	for s, want := range map[string]bool{"": true, "a b\tc": true, "\xff": true, "a\r\nx: y": false, "a\n": false, "a\x00": false, "\x7f": false} {
		if IsValue(s) != want {
			t.Errorf("IsValue(%q) is %v", s, !want)
		}
	}
}
