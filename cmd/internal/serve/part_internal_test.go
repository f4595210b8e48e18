package serve

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// Two parts with one flag panic when the command is made, and so at each start of the program.
func TestTwoPartsWithOneFlagPanic(t *testing.T) {
	for name, more := range map[string]string{"of another part": "bell", "of the core": "addr"} {
		t.Run(name, func(t *testing.T) {
			flags := func(name string) *Part {
				return &Part{Flags: func(f *pflag.FlagSet) { f.String(name, "", "") }}
			}
			s := &settings{parts: parts{flags("bell"), flags(more)}}
			defer func() {
				if recover() == nil {
					t.Error("both have their flag")
				}
			}()
			s.flags(pflag.NewFlagSet("serve", pflag.ContinueOnError))
		})
	}
}

// Of parts that do not all start, those that have started are closed, and the others give
// back what they listen on.
func TestPartsStartOrLeaveNothing(t *testing.T) {
	var did []string
	made := func(name string, fails error) *Part {
		return &Part{
			Listen:   func(net.Addr, bool) error { did = append(did, "listen "+name); return nil },
			Unlisten: func() { did = append(did, "unlisten "+name) },
			Start:    func(*Running) error { did = append(did, "start "+name); return fails },
			Close:    func() error { did = append(did, "close "+name); return nil },
		}
	}
	broken := errors.New("broken")
	all := parts{made("a", nil), {}, made("b", broken), made("c", nil)}
	if err := all.listen(nil, false); err != nil {
		t.Fatal(err)
	}
	started, err := all.start(&Running{})
	if !errors.Is(err, broken) || started.close() != nil {
		t.Errorf("%v", err)
	}
	if want := []string{"listen a", "listen b", "listen c", "start a", "start b", "unlisten b", "unlisten c", "close a"}; !slices.Equal(did, want) {
		t.Errorf("%q, want %q", did, want)
	}
	did = nil
	all[2].Listen = func(net.Addr, bool) error { return broken }
	if err := all.listen(nil, false); !errors.Is(err, broken) || !slices.Equal(did, []string{"listen a", "unlisten a"}) {
		t.Errorf("%v %q", err, did)
	}
}
