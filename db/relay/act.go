package relay

import "time"

// An Actor is who administers a store: a user of its machine, and the command that the
// user ran. The zero Actor is nobody.
type Actor struct {
	UID     int64  // the number of the user; NoUID if the system has none
	User    string // the name of the user; "" if it is not known
	Command string // as in "key create", without arguments
}

// NoUID is the UID of an Actor on a system whose users have no numbers.
const NoUID = -1

func (a *Actor) fields(f *form) {
	f.int64(&a.UID)
	text(f, &a.User)
	text(f, &a.Command)
}

// The acts that the audit log knows. Each is a word for machines.
const (
	ActKeyIssued      = "key_issued"
	ActKeyRotated     = "key_rotated"
	ActKeyRevoked     = "key_revoked"
	ActMechaRemoved   = "mecha_removed"
	ActProfileSet     = "profile_set"
	ActImportBegun    = "import_begun"
	ActImportEnded    = "import_ended"
	ActRestored       = "restored"
	ActCompacted      = "compacted"
	ActPruneBegun     = "prune_begun"
	ActMessagesPruned = "messages_pruned"
	ActMessageSent    = "message_sent"
	ActMessageExpired = "message_expired"
	ActForgotten      = "learned_forgotten"
	ActClusterFounded = "cluster_founded"
	ActClusterLeft    = "cluster_left"
)

// Act is the write that an operator makes. It applies another write, and notes in the
// audit log who made it: both, or neither. Without another write it only notes What and
// Detail. It is a write, so that each copy of the store has the whole audit log.
type Act struct {
	At     time.Time
	By     Actor
	Write  Write  // *IssueKey, *RevokeKey, *PutProfile, *RemoveMecha, *SendMessage, *ExpireMessage, *ForgetLearned or nil
	What   string // one of the acts above; with a Write it follows from the Write
	Detail string // for people; with a Write it follows from the Write
}

func (a *Act) When() time.Time {
	if a.Write != nil {
		return a.Write.When()
	}
	return a.At
}

func (a *Act) setTime(at time.Time) {
	a.At = at
	if a.Write != nil {
		a.Write.setTime(at)
	}
}

func (a *Act) Size() int {
	size := 256 + len(a.Detail)
	if a.Write != nil {
		size += a.Write.Size()
	}
	return size
}

func (a *Act) kind() byte { return kindAct }

func (a *Act) fields(f *form) {
	f.time(&a.At)
	a.By.fields(f)
	text(f, &a.What)
	text(f, &a.Detail)
	var inner []byte
	if !f.reading && a.Write != nil {
		inner = AppendWrite(nil, a.Write)
	}
	f.blob(&inner)
	if !f.reading || len(inner) == 0 {
		return
	}
	if inner[0] == kindAct { // no program writes that, and it could nest endlessly
		f.fail("an act holds an act")
		return
	}
	write, err := ReadWrite(inner)
	if err != nil {
		f.fail(err.Error())
		return
	}
	a.Write = write
}

// NotedAct is a row of the audit log.
type NotedAct struct {
	At     time.Time
	By     Actor
	What   string
	Mecha  Address // whom it concerns; "" if no single Mecha
	Key    KeyID   // which key it concerns; "" if none
	Detail string
}
