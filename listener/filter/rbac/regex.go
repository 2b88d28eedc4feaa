package rbac

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"sluice/internal/config"
)

// scheme is what all principals begin with, namespaceMark the part of one that
// names a namespace.
const (
	scheme        = "spiffe://"
	namespaceMark = "/ns/"
)

// regexKey is of what every value that matches must have: for a principal a
// namespace ("/ns/NAME/", which is how istiod asks for one), else how it begins or
// ends.
func regexKey(of operand, re *regexp.Regexp) (key, bool) {
	if re == nil {
		return key{}, false
	}
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil || tree.Op != syntax.OpConcat {
		return key{}, false
	}
	if of.op == config.RBACAuthenticated {
		for _, part := range tree.Sub {
			if s := literal(part); isNamespace(s) {
				return key{of: of, kind: config.MatchContains, value: s}, true
			}
		}
	}
	return endsKey(of, tree.Sub)
}

func endsKey(of operand, parts []*syntax.Regexp) (key, bool) {
	first, last, n := "", "", len(parts)
	if parts[0].Op == syntax.OpBeginText {
		first = literal(parts[1])
	}
	if parts[n-1].Op == syntax.OpEndText {
		last = literal(parts[n-2])
	}
	if len(last) > len(strings.TrimPrefix(first, scheme)) {
		return key{of: of, kind: config.MatchSuffix, value: last}, true
	}
	return key{of: of, kind: config.MatchPrefix, value: first}, first != ""
}

// literal is the text that a part of an expression stands for, "" if it stands for
// several. U+FFFD also matches bytes that are no UTF-8.
func literal(part *syntax.Regexp) string {
	s := string(part.Rune)
	if part.Op != syntax.OpLiteral || part.Flags&syntax.FoldCase != 0 || strings.ContainsRune(s, utf8.RuneError) {
		return ""
	}
	return s
}

func isNamespace(s string) bool {
	return len(s) > len(namespaceMark) && s[:len(namespaceMark)] == namespaceMark && strings.IndexByte(s[len(namespaceMark):], '/') == len(s)-len(namespaceMark)-1
}

// findNamespaces adds what is listed under the namespaces in v.
func (s *shape) findNamespaces(v string, c *candidates) {
	for i := strings.Index(v, namespaceMark); i >= 0; i = strings.Index(v, namespaceMark) {
		v = v[i:]
		name := v[len(namespaceMark):]
		end := strings.IndexByte(name, '/')
		if end < 0 {
			return
		}
		c.add(s.at[v[:len(namespaceMark)+end+1]])
		v = v[1:]
	}
}
