package runlog

import (
	"strings"
	"testing"
)

func TestConnName_FitsAndKeepsTheNameThatIsGiven(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"", "pgexec log 2147483647"},
		{"shop", "shop: pgexec log 2147483647"},
		{strings.Repeat("s", 100), strings.Repeat("s", 40) + ": pgexec log 2147483647"},
		{strings.Repeat("s", 39) + "é", strings.Repeat("s", 39) + ": pgexec log 2147483647"},
	} {
		if got := ConnName(c.given, "log", 1<<31-1); got != c.want || len(got) > 63 {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
