package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// StringKind says how a StringMatch compares.
type StringKind uint8

// The kinds of StringMatch.
const (
	MatchExact StringKind = iota
	MatchPrefix
	MatchSuffix
	MatchContains
	MatchRegex // RE2 over the whole value; the pattern is anchored by translate
)

// StringMatch is Envoy's StringMatcher. With IgnoreCase, Value is lower-cased.
type StringMatch struct {
	Kind       StringKind
	Value      string
	IgnoreCase bool
	Regex      *regexp.Regexp
}

// Match reports whether s fits. A value that is no valid UTF-8 is matched as
// the bytes it is, so that a deny rule by regex can't be dodged (FAULTS Z-05).
func (m *StringMatch) Match(s string) bool {
	if m.Kind == MatchRegex {
		return m.Regex.MatchString(s)
	}
	if m.IgnoreCase {
		s = strings.ToLower(s)
	}
	switch m.Kind {
	case MatchPrefix:
		return strings.HasPrefix(s, m.Value)
	case MatchSuffix:
		return strings.HasSuffix(s, m.Value)
	case MatchContains:
		return strings.Contains(s, m.Value)
	}
	return s == m.Value
}

// HeaderMatch is Envoy's HeaderMatcher: one of Present, Range or Strings
// decides. Name is lower-case and may be a pseudo header (":path").
type HeaderMatch struct {
	Name                string
	Present             bool         // present_match: true
	Absent              bool         // present_match: false
	Range               *[2]int64    // [start, end)
	String              *StringMatch // any other kind
	Invert              bool
	TreatMissingAsEmpty bool
}

// QueryMatch is Envoy's QueryParameterMatcher: with String nil the parameter
// only has to be present, or absent.
type QueryMatch struct {
	Name   string
	String *StringMatch
	Absent bool
}

// Prefixes is a CIDR list.
type Prefixes []netip.Prefix

// Contains reports whether a lies in one of the prefixes.
func (p Prefixes) Contains(a netip.Addr) bool {
	a = a.Unmap()
	for _, x := range p {
		if x.Contains(a) {
			return true
		}
	}
	return false
}

// MetadataMatch matches dynamic metadata of the request.
type MetadataMatch struct {
	Namespace string
	Path      []string
	Value     *ValueMatch
	Invert    bool
}

// Match reports whether metadata fits.
func (m *MetadataMatch) Match(md Metadata) bool {
	v, ok := md.Lookup(m.Namespace, m.Path...)
	return (ok && m.Value != nil && m.Value.Match(v)) != m.Invert
}

// ValueMatch is Envoy's ValueMatcher: one member is set.
type ValueMatch struct {
	Null    bool
	Number  *[2]float64 // [start, end); the end of an exact one is the next number
	String  *StringMatch
	Bool    *bool
	Present *bool
	List    *ValueMatch // one_of
	Or      []ValueMatch
}

// Match reports whether a value that is there fits. One that isn't there fits
// nothing, and Present false fits nothing at all: so does Envoy.
func (m *ValueMatch) Match(v Value) bool {
	switch {
	case m.Present != nil:
		return *m.Present
	case m.Null:
		return v == nil
	case m.Number != nil:
		n, ok := v.(float64)
		return ok && n >= m.Number[0] && n < m.Number[1]
	case m.String != nil:
		s, ok := v.(string)
		return ok && m.String.Match(s)
	case m.Bool != nil:
		b, ok := v.(bool)
		return ok && b == *m.Bool
	case m.List != nil:
		l, _ := v.(List)
		return slices.ContainsFunc(l, m.List.Match)
	}
	return slices.ContainsFunc(m.Or, func(o ValueMatch) bool { return o.Match(v) })
}
