package translate

import (
	"reflect"
	"testing"

	"sluice/internal/config"
)

// fill sets v to something else than its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

func seesEachField[T any](t *testing.T, same func(a, b *T) bool) {
	for i := range reflect.TypeFor[T]().NumField() {
		a, b := new(T), new(T)
		fill(t, reflect.ValueOf(b).Elem().Field(i))
		if same(a, b) || !same(b, b) {
			t.Errorf("%s.%s isn't compared", reflect.TypeFor[T](), reflect.TypeFor[T]().Field(i).Name)
		}
	}
}

func TestEachFieldOfSharedTLSIsCompared(t *testing.T) {
	seesEachField[config.TLSParams](t, sameTLS)
	seesEachField[config.Validation](t, samePeer)
}
