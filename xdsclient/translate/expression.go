package translate

import (
	"strconv"
	"strings"

	"sluice/internal/config"
)

// maxExpressionDepth bounds how deep an expression nests: translation and
// evaluation recurse.
const maxExpressionDepth = 64

// expression parses a CEL expression over the attributes of a request. What the
// evaluator can't do is refused here, by name: an expression that silently never
// holds would hide what it is about.
func (s scope) expression(text string) *config.Expression {
	tokens, bad := lex(text)
	if bad != "" {
		s.bad("failed to parse expression: unexpected %q", bad[:min(len(bad), 20)])
		return nil
	}
	p := &expressionParser{s: s, tokens: tokens}
	e := p.choice()
	if p.ok() && p.now().kind != 0 {
		p.fail("unexpected %q", p.now().text)
	}
	if p.failed {
		return nil
	}
	return &e
}

// expressionParser goes down the grammar of CEL, one method a level. After the
// first problem, which it notes, it takes nothing any more.
type expressionParser struct {
	s      scope
	tokens []token
	at     int
	depth  int
	failed bool
}

func (p *expressionParser) ok() bool   { return !p.failed }
func (p *expressionParser) now() token { return p.tokens[p.at] }

func (p *expressionParser) fail(format string, args ...any) config.Expression {
	if !p.failed {
		p.failed = true
		p.s.bad("failed to parse expression: "+format, args...)
	}
	p.at = len(p.tokens) - 1
	return config.Expression{}
}

// take takes the operator or word text if it is next.
func (p *expressionParser) take(text string) bool {
	if t := p.now(); (t.kind == 'o' || t.kind == 'i') && t.text == text {
		p.at++
		return true
	}
	return false
}

func (p *expressionParser) want(text string) {
	if p.ok() && !p.take(text) {
		p.fail("%q expected, not %q", text, p.now().text)
	}
}

func operation(op config.ExpressionOp, sub ...config.Expression) config.Expression {
	return config.Expression{Op: op, Sub: sub}
}

// choice is a ? b : c.
func (p *expressionParser) choice() config.Expression {
	if p.depth++; p.depth > maxExpressionDepth {
		return p.fail("nested more than %d levels", maxExpressionDepth)
	}
	defer func() { p.depth-- }()
	e := p.binary(0)
	if p.take("?") {
		yes := p.binary(0)
		p.want(":")
		e = operation(config.ExprChoose, e, yes, p.choice())
	}
	return e
}

// levels are the binary operators by how tightly they bind, the loosest first.
func binaryOperators(level int) map[string]config.ExpressionOp {
	switch level {
	case 0:
		return map[string]config.ExpressionOp{"||": config.ExprOr}
	case 1:
		return map[string]config.ExpressionOp{"&&": config.ExprAnd}
	case 2:
		return map[string]config.ExpressionOp{"==": config.ExprEqual, "!=": config.ExprNotEqual, "<": config.ExprLess, "<=": config.ExprLessEqual,
			">": config.ExprGreater, ">=": config.ExprGreaterEqual, "in": config.ExprIn}
	case 3:
		return map[string]config.ExpressionOp{"+": config.ExprAdd, "-": config.ExprSubtract}
	case 4:
		return map[string]config.ExpressionOp{"*": config.ExprMultiply, "/": config.ExprDivide, "%": config.ExprModulo}
	}
	return nil
}

func (p *expressionParser) binary(level int) config.Expression {
	operators := binaryOperators(level)
	if operators == nil {
		return p.unary()
	}
	e := p.binary(level + 1)
	for n := 0; p.ok(); n++ {
		t := p.now()
		op, is := operators[t.text]
		if !is || t.kind != 'o' && t.text != "in" {
			return e
		}
		if n > maxExpressionDepth {
			return p.fail("more than %d operators in a row", maxExpressionDepth)
		}
		p.at++
		e = operation(op, e, p.binary(level+1))
	}
	return e
}

func (p *expressionParser) unary() config.Expression {
	if p.depth++; p.depth > maxExpressionDepth {
		return p.fail("nested more than %d levels", maxExpressionDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.take("!"):
		return operation(config.ExprNot, p.unary())
	case p.take("-"):
		return operation(config.ExprMinus, p.unary())
	}
	return p.member()
}

// member is a primary expression with what follows it: .name, .method(...) and
// [key].
func (p *expressionParser) member() config.Expression {
	e := p.primary()
	for n := 0; p.ok(); n++ {
		if n > maxExpressionDepth {
			return p.fail("more than %d members in a row", maxExpressionDepth)
		}
		switch {
		case p.take("["):
			e = operation(config.ExprIndex, e, p.choice())
			p.want("]")
		case p.take("."):
			name := p.name()
			if p.take("(") {
				e = p.method(name, e, p.arguments(")"))
			} else {
				e = operation(config.ExprIndex, e, config.Expression{Op: config.ExprText, Text: []byte(name)})
				e.Int = 1
			}
		default:
			return e
		}
	}
	return e
}

func (p *expressionParser) name() string {
	t := p.now()
	if t.kind != 'i' {
		p.fail("a name expected, not %q", t.text)
		return ""
	}
	p.at++
	return t.text
}

// arguments are expressions up to the closing bracket.
func (p *expressionParser) arguments(end string) (list []config.Expression) {
	for p.ok() && !p.take(end) {
		if len(list) > 0 {
			p.want(",")
		}
		list = append(list, p.choice())
	}
	return list
}

func (p *expressionParser) primary() config.Expression {
	t := p.now()
	switch {
	case t.kind == 's':
		p.at++
		return config.Expression{Op: config.ExprText, Text: []byte(t.text)}
	case t.kind == 'n':
		p.at++
		return p.number(t.text)
	case p.take("("):
		e := p.choice()
		p.want(")")
		return e
	case p.take("["):
		return operation(config.ExprList, p.arguments("]")...)
	case t.kind == 'i':
		p.at++
		return p.word(t.text)
	}
	return p.fail("unexpected %q", t.text)
}

func (p *expressionParser) number(text string) config.Expression {
	if n, err := strconv.ParseInt(strings.TrimRight(text, "uU"), 0, 64); err == nil {
		return config.Expression{Op: config.ExprInt, Int: n}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return p.fail("%q is no number", text)
	}
	return config.Expression{Op: config.ExprFloat, Float: f}
}

// word is a constant, a function or the first part of an attribute.
func (p *expressionParser) word(text string) config.Expression {
	switch text {
	case "true":
		return config.Expression{Op: config.ExprBool, Int: 1}
	case "false":
		return config.Expression{Op: config.ExprBool}
	case "null":
		return config.Expression{Op: config.ExprNull}
	}
	if p.take("(") {
		return p.function(text, p.arguments(")"))
	}
	name := text
	if text != "filter_state" {
		p.want(".")
		name += "." + p.name()
	}
	e, ok := attribute(name)
	switch {
	case !p.ok():
		return config.Expression{}
	case !ok:
		return p.fail("not supported yet: the attribute %s", name)
	}
	return e
}

func (p *expressionParser) function(name string, args []config.Expression) config.Expression {
	ops := map[string]config.ExpressionOp{"size": config.ExprSize, "has": config.ExprHas, "int": config.ExprToInt}
	op, ok := ops[name]
	switch {
	case !p.ok():
		return config.Expression{}
	case !ok || len(args) != 1:
		return p.fail("not supported yet: the function %s of %d arguments", name, len(args))
	case op == config.ExprHas && (args[0].Op == config.ExprIndex && args[0].Int == 0 || args[0].Op != config.ExprIndex && !isAttribute(args[0].Op)):
		return p.fail("has() wants a member")
	}
	return operation(op, args...)
}

func (p *expressionParser) method(name string, of config.Expression, args []config.Expression) config.Expression {
	ops := map[string]config.ExpressionOp{"startsWith": config.ExprStartsWith, "endsWith": config.ExprEndsWith, "contains": config.ExprContains, "matches": config.ExprMatches}
	op, ok := ops[name]
	switch {
	case !p.ok():
		return config.Expression{}
	case name == "size" && len(args) == 0:
		return operation(config.ExprSize, of)
	case !ok || len(args) != 1:
		return p.fail("not supported yet: the method %s with %d arguments", name, len(args))
	case op != config.ExprMatches:
		return operation(op, of, args[0])
	case args[0].Op != config.ExprText:
		return p.fail("not supported yet: matches() with a pattern that isn't constant")
	}
	e := operation(op, of)
	e.Regex = p.s.pattern(string(args[0].Text), true)
	return e
}
