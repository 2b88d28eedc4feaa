package buffer

import (
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
)

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		rule    string
		x       filter.Exchange
		length  string // that the client told
		verdict filter.Verdict
		want    string // content-length after
	}{
		{"no content", filter.Exchange{End: true}, "", filter.Continue, ""},
		{"content to come", filter.Exchange{}, "3", filter.Gather, "3"},
		{"content that is whole", filter.Exchange{Whole: true, Content: []byte("abc")}, "3", filter.Continue, "3"},
		{"content without a length gets one", filter.Exchange{Whole: true, Content: []byte("abc")}, "", filter.Continue, "3"},
		{"content that another filter took and that is too long", filter.Exchange{Whole: true, Content: []byte("abcdef")}, "6", filter.Gather, "6"},
	} {
		x := c.x
		x.Request = &httpmsg.Head{}
		if c.length != "" {
			x.Request.AddString(httpmsg.ContentLength, c.length)
		}
		if v := New(&config.Buffer{MaxBytes: 5}).Decode(&x, nil); v != c.verdict || v == filter.Gather && x.Limit != 5 {
			t.Errorf("%s: verdict %d, limit %d", c.rule, v, x.Limit)
		}
		if got := string(x.Request.Get(httpmsg.ContentLength)); got != c.want {
			t.Errorf("%s: content-length %q, want %q", c.rule, got, c.want)
		}
	}
}
