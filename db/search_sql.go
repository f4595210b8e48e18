package db

import (
	"context"
	"time"
)

// A SearchID names a search that was asked for: `srch_` and 26 random characters.
type SearchID string

// NewSearchID makes a SearchID. Nobody can guess it.
func NewSearchID() SearchID { return SearchID(randomID("srch_", idChars)) }

// SearchLife is how long the answer to a search is kept (PROTOCOL §5).
const SearchLife = time.Hour

const searchesPerMecha = 100

// SaveSearch is the write that keeps the answer to a search.
type SaveSearch struct {
	At     time.Time
	ID     SearchID
	Mecha  MechaID
	Answer []byte // JSON
	Nonce  NonceHash
}

// SaveSearch keeps an answer with the next commit, without waiting for it.
// then is called from the writer's goroutine and must not block.
func (d *DB) SaveSearch(s *SaveSearch, then func(error)) { d.submit(s, then) }

func (s *SaveSearch) size() int { return 256 + len(s.Answer) }

func (s *SaveSearch) apply(t *tx) error {
	err := t.c.exec("INSERT INTO search (position, id, mecha, expires_at, answer, nonce) VALUES (?, ?, ?, ?, ?, ?)",
		int64(t.position(s.At)), string(s.ID), int64(s.Mecha), s.At.Add(SearchLife).UnixMilli(), string(s.Answer), orNull(int64(s.Nonce)))
	if err != nil {
		return err
	}
	return t.c.exec(`DELETE FROM search WHERE position IN
		(SELECT position FROM search INDEXED BY search_mecha WHERE mecha = ? ORDER BY position DESC LIMIT -1 OFFSET ?)`,
		int64(s.Mecha), int64(searchesPerMecha))
}

// Search reads the answer to a search: SearchNotFound, NotYourSearch, and after
// its hour SearchExpired.
func (d *DB) Search(ctx context.Context, id SearchID, caller MechaID) (answer []byte, err error) {
	err = d.read(ctx, func(x *rx) error {
		var owner, expires int64
		found, err := x.c.row(func(r *rows) { owner, expires, answer = r.int(0), r.int(1), []byte(r.text(2)) },
			"SELECT mecha, expires_at, answer FROM search WHERE id = ?", string(id))
		switch {
		case err != nil:
			return err
		case !found:
			return Errorf(SearchNotFound, "there is no search %s", quote(string(id)))
		case MechaID(owner) != caller:
			return Errorf(NotYourSearch, "another Mecha asked for this search")
		case x.now.UnixMilli() >= expires:
			return Errorf(SearchExpired, "the answer was kept until %s; search again", FormatTime(unixMilli(expires)))
		}
		return nil
	})
	return answer, err
}
