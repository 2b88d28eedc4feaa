package headermutation

import (
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
)

func text(s string) *config.Format {
	return &config.Format{Items: []config.FormatItem{{Text: s}}}
}

func exchange(path string) *filter.Exchange {
	x := &filter.Exchange{Request: &httpmsg.Head{}}
	x.Request.SetPath([]byte(path))
	x.Eval = func(dst []byte, f *config.Format) []byte {
		for _, it := range f.Items {
			if it.Op != "" { // any operator gives x-a
				v, _ := x.Request.Value("x-a")
				dst = append(dst, v...)
			}
			dst = append(dst, it.Text...)
		}
		return dst
	}
	return x
}

func TestQueryMutations(t *testing.T) {
	set := func(a config.HeaderAppendAction) config.QueryMutation {
		return config.QueryMutation{Name: "k", Value: text("v"), Action: a}
	}
	for _, c := range []struct {
		rule, path string
		edit       config.QueryMutation
		want       string
	}{
		{"append to none", "/x", set(config.AppendOrAdd), "/x?k=v"},
		{"append to some", "/x?k=1", set(config.AppendOrAdd), "/x?k=1&k=v"},
		{"add if absent", "/x?k=1", set(config.AddIfAbsent), "/x?k=1"},
		{"overwrite all of a name", "/x?k=1&z=2&k=3", set(config.OverwriteOrAdd), "/x?k=v&z=2"},
		{"overwrite none", "/x?z=2", set(config.OverwriteIfExists), "/x?z=2"},
		{"a name is compared decoded", "/x?%6b=1", set(config.OverwriteIfExists), "/x?k=v"},
		{"remove the last", "/x?k=1", config.QueryMutation{Remove: "k"}, "/x"},
		{"remove of several", "/x?k=1&b=2&k", config.QueryMutation{Remove: "k"}, "/x?b=2"},
		{"sorted by name, text as it came", "/x?z=%2F&a=b+c&&m", config.QueryMutation{Remove: "k"}, "/x?a=b+c&m&z=%2F"},
		{"a value can't be more than one", "/x", config.QueryMutation{Name: "a&b", Value: text("1 2&c=\r\n")}, "/x?a%26b=1%202%26c%3D%0D%0A"},
	} {
		x := exchange(c.path)
		New(&config.HeaderMutationFilter{Query: []config.QueryMutation{c.edit}}).Decode(x, nil)
		if got := string(x.Request.Path()); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestMutationsFollowOneAnother(t *testing.T) {
	seen := &config.Format{Items: []config.FormatItem{{Op: "REQ", Arg: "x-a"}}}
	own := &config.HeaderMutationFilter{Request: []config.HeaderMutation{{Name: "x-a", Value: text("1")}, {Name: "x-b", Value: seen}}}
	own.Next = &config.HeaderMutationFilter{Request: []config.HeaderMutation{{Remove: "x-a"}, {Name: "x-c", Value: text("3")}}}
	x := exchange("/")
	New(own).Decode(x, nil)
	for name, want := range map[string]string{"x-a": "", "x-b": "1", "x-c": "3"} {
		if v, _ := x.Request.Value(name); string(v) != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
}
