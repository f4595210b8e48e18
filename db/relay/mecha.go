package relay

import (
	"strings"
	"time"
)

// An Address names a Mecha: `<name>^<crew>` (PROTOCOL §1). Addresses are
// compared exactly; the store refuses two that differ in letter case only.
type Address string

// A MechaNumber is the store's own number for a Mecha. It never leaves the process.
type MechaNumber int64

// Mecha is a registered participant.
type Mecha struct {
	Number    MechaNumber
	Address   Address
	CreatedAt time.Time
}

// Name and Crew are the two sides of the address.
func (a Address) Name() string { name, _, _ := strings.Cut(string(a), "^"); return name }

// Crew is what stands behind the ^.
func (a Address) Crew() string { _, crew, _ := strings.Cut(string(a), "^"); return crew }

const maxWord = 64 // characters of a name, a crew, a message type

// ParseAddress checks s against PROTOCOL §1. The error is InvalidAddress.
func ParseAddress(s string) (Address, error) {
	name, crew, ok := strings.Cut(s, "^")
	if !ok {
		return "", Errorf(InvalidAddress, "%s is no address: it has the form <name>^<crew>, as in planner^acme", Quote(s))
	}
	if !isAddressWord(name) || !isAddressWord(crew) {
		return "", Errorf(InvalidAddress,
			"%s is no address: name and crew are 1–64 of A–Z a–z 0–9 . _ - and start with a letter or digit", Quote(s))
	}
	return Address(s), nil
}

func isAddressWord(s string) bool {
	return len(s) >= 1 && len(s) <= maxWord && isAlnum(s[0]) && only(s, "._-")
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// only tells whether s has nothing but ASCII letters, digits and the bytes of extra.
func only(s, extra string) bool {
	for i := 0; i < len(s); i++ {
		if !isAlnum(s[i]) && strings.IndexByte(extra, s[i]) < 0 {
			return false
		}
	}
	return true
}

// Quote shows a client's own text in an error, at a bounded length.
func Quote(s string) string {
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	return "“" + strings.ToValidUTF8(s, "\uFFFD") + "”"
}
