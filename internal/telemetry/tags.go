package telemetry

import (
	"regexp"
	"strings"
	"sync"

	"sluice/internal/config"
)

// Tags turn parts of Envoy's dotted names into labels, as stats_config.stats_tags
// says. Istio replaces Envoy's own tags, and its dashboards ask for the labels.
// It is safe for concurrent use.
type Tags struct {
	list []config.StatsTag
	mu   sync.Mutex
	seen map[string]shown // by dotted name: scrapes come back to the same ones
}

type shown struct {
	prom   string
	labels []Label
}

// seenMax bounds what is remembered; beyond it all is forgotten, for clusters come
// and go.
const seenMax = 1 << 17

// ofWord finds expressions that begin with a whole word of the name.
var ofWord = regexp.MustCompile(`^\^\w+(\\\.|\$$)`)

// NewTags gives nil, which changes nothing, for an empty list.
func NewTags(list []config.StatsTag) *Tags {
	if len(list) == 0 {
		return nil
	}
	t := &Tags{seen: make(map[string]shown)}
	for _, last := range []bool{false, true} { // Envoy looks those up by the name's first word, after the others
		for _, tag := range list {
			if last == (tag.Regex != nil && ofWord.MatchString(tag.Regex.String())) {
				t.list = append(t.list, tag)
			}
		}
	}
	return t
}

// apply gives a metric with one of Envoy's names the name and labels that the tags
// say, and reports whether it did. Others have labels of their own.
func (t *Tags) apply(m *Metric) bool {
	if t == nil || !strings.HasPrefix(m.Prom, "envoy_") {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.seen[m.Name]
	if !ok {
		if len(t.seen) >= seenMax {
			clear(t.seen)
		}
		x = t.extract(m.Name)
		t.seen[m.Name] = x
	}
	m.Prom, m.Labels = x.prom, x.labels
	return true
}

// extract applies every tag to the whole name: the second group of its expression
// is the value, the first is what the name loses; with one group it is both.
func (t *Tags) extract(name string) shown {
	gone := make([]bool, len(name))
	var labels []Label
	for i := range t.list {
		tag := &t.list[i]
		if tag.Regex == nil {
			labels = append(labels, Label{promName(tag.Name), tag.Fixed})
			continue
		}
		at := tag.Regex.FindStringSubmatchIndex(name)
		if len(at) < 4 || at[2] < 0 {
			continue
		}
		value := name[at[2]:at[3]]
		if len(at) > 5 && at[4] >= 0 {
			value = name[at[4]:at[5]]
		}
		labels = append(labels, Label{promName(tag.Name), value})
		for j := at[2]; j < at[3]; j++ {
			gone[j] = true
		}
	}
	left := make([]byte, 0, len(name))
	for i := range len(name) {
		if !gone[i] {
			left = append(left, name[i])
		}
	}
	return shown{"envoy_" + promName(string(left)), labels}
}
