package headertometadata

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

func TestRules(t *testing.T) {
	to := func(value string) *config.MetadataFrom {
		return &config.MetadataFrom{Namespace: "ns", Key: "k", Value: value}
	}
	number := &config.MetadataFrom{Namespace: "ns", Key: "k", Number: true}
	rewrite := &config.MetadataFrom{Namespace: "ns", Key: "k", Rewrite: &config.RegexRewrite{Regex: regexp.MustCompile("^(.)(.)"), Substitution: "${2}${1}"}}
	for _, c := range []struct {
		rule  string
		head  string // name=value ...
		is    config.MetadataRule
		value config.Value // nil: none
		left  bool         // the header x-a is there afterwards
	}{
		{"a header's value", "x-a=1", config.MetadataRule{Header: "x-a", Present: to("")}, "1", true},
		{"its lines joined", "x-a=1 x-a=2", config.MetadataRule{Header: "x-a", Present: to("")}, "1,2", true},
		{"a constant when it is there", "x-a=1", config.MetadataRule{Header: "x-a", Present: to("yes")}, "yes", true},
		{"rewritten", "x-a=abc", config.MetadataRule{Header: "x-a", Present: rewrite}, "bac", true},
		{"removed", "x-a=1", config.MetadataRule{Header: "x-a", Present: to(""), Remove: true}, "1", false},
		{"missing", "x-b=1", config.MetadataRule{Header: "x-a", Missing: to("no")}, "no", false},
		{"not missing", "x-a=1", config.MetadataRule{Header: "x-a", Missing: to("no")}, nil, true},
		{"empty", "x-a=", config.MetadataRule{Header: "x-a", Present: to("")}, nil, true},
		{"too long", "x-a=" + strings.Repeat("x", maxValue), config.MetadataRule{Header: "x-a", Present: to("")}, nil, true},
		{"a number", "x-a=1.5", config.MetadataRule{Header: "x-a", Present: number}, 1.5, true},
		{"no number", "x-a=one", config.MetadataRule{Header: "x-a", Present: number}, nil, true},
		{"a cookie", "cookie=a=1;b=2", config.MetadataRule{Cookie: "b", Present: to("")}, "2", false},
		{"another cookie", "cookie=a=1", config.MetadataRule{Cookie: "b", Present: to(""), Missing: to("no")}, "no", false},
	} {
		h := &httpmsg.Head{}
		for _, f := range strings.Fields(c.head) {
			name, value, _ := strings.Cut(f, "=")
			h.Add([]byte(name), []byte(value))
		}
		x := &filter.Exchange{Record: &telemetry.Record{}, Request: h}
		New(&config.HeaderToMetadata{Request: []config.MetadataRule{c.is}}).Decode(x, nil)
		v, _ := x.Record.Dynamic.Lookup("ns", "k")
		if _, left := h.Value("x-a"); !reflect.DeepEqual(v, c.value) || left != c.left {
			t.Errorf("%s: %v, header left: %v", c.rule, v, left)
		}
	}
}
