package relay

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// grown is a write that two newer versions of the form have given a field each.
type grown struct {
	MarkDelivered
	Second string
	Third  int64
}

func (g *grown) fields(f *form) {
	g.MarkDelivered.fields(f)
	if f.since(2, g.Second != "") {
		text(f, &g.Second)
	}
	if f.since(3, g.Third != 0) {
		f.int64(&g.Third)
	}
}

// A write has the oldest version that holds it, and a program that does not know the version refuses
// it. A node proposes no write of a version that has no place in RulesOf.
func TestAWriteOfANewerVersionIsReadByThoseWhoKnowIt(t *testing.T) {
	was := MarkDelivered{At: time.Unix(3, 5).UTC(), Key: 3, ID: "msg_2", Nonce: 11}
	if form := AppendWrite(nil, &grown{MarkDelivered: was}); !bytes.Equal(form, AppendWrite(nil, &was)) {
		t.Errorf("without the newer fields: %q", form)
	}
	for _, c := range []struct {
		write   grown
		version byte
		rules   int64
	}{
		{grown{}, 1, 1},
		{grown{Second: "b"}, 2, math.MaxInt64},
		{grown{Third: 3}, 3, math.MaxInt64},
		{grown{Second: "b", Third: 3}, 3, math.MaxInt64},
	} {
		c.write.MarkDelivered = was
		form := AppendWrite([]byte("before"), &c.write)[len("before"):]
		if rules := RulesOf(&c.write, form); form[1] != c.version || rules != c.rules {
			t.Errorf("%+v has the version %d, under the rules %d", c.write, form[1], rules)
		}
		for newest := byte(1); newest <= 3; newest++ {
			got := new(grown)
			err := readForm(got, form, newest)
			switch known := newest >= c.version; {
			case known && (err != nil || !reflect.DeepEqual(*got, c.write)):
				t.Errorf("%+v is read as %+v, %v", c.write, *got, err)
			case !known && (err == nil || !strings.Contains(err.Error(), "this program knows the versions up to")):
				t.Errorf("%+v, by a program of version %d: %v", c.write, newest, err)
			}
		}
		if _, err := ReadWrite(form); (err == nil) != (c.version == 1) {
			t.Errorf("%+v, by this program: %v", c.write, err)
		}
	}
	form := AppendWrite(nil, &was)
	form[1] = 2
	if err := readForm(new(grown), append(form, 0), 3); err == nil || !strings.Contains(err.Error(), "an older one holds it") {
		t.Errorf("a version that is not needed: %v", err)
	}
}
