package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"slices"
	"time"
)

// A file is one entry of an archive.
// It has no time and no owner on purpose: every entry gets the same time, and nobody owns it.
type file struct {
	name       string // with forward slashes, from the root of the archive
	data       []byte
	executable bool
}

// mode is the same for everybody who builds. The umask of the builder must not reach the archive.
func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// sorted returns the files by name, so that the order in which they were found does not matter.
// Two files of one name are an error: which of them wins would depend on the reader.
func sorted(files []file) ([]file, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(files); i++ {
		if files[i].name == files[i-1].name {
			return nil, fmt.Errorf("%s is in the archive twice", files[i].name)
		}
	}
	return files, nil
}

// tarGz returns a gzip-compressed tar archive of the files.
func tarGz(files []file, when time.Time) ([]byte, error) {
	files, err := sorted(files)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	// The header holds a name, a time and the system of the builder. None of them is ours to tell.
	zw.Header = gzip.Header{OS: 255}
	tw := tar.NewWriter(zw)
	for _, f := range files {
		// The user and group stay zero and unnamed. Whole seconds fit the old format, which every tar reads.
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     f.name,
			Size:     int64(len(f.data)),
			Mode:     f.mode(),
			ModTime:  when.UTC().Truncate(time.Second),
			Format:   tar.FormatUSTAR,
		}
		if err := tw.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := tw.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// zipFirst is the earliest time that a zip archive can hold.
var zipFirst = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// zipped returns a zip archive of the files.
func zipped(files []file, when time.Time) ([]byte, error) {
	files, err := sorted(files)
	if err != nil {
		return nil, err
	}
	// The zip writer reads the time zone of the time it is given, so it gets UTC.
	when = when.UTC().Truncate(2 * time.Second) // a zip archive counts in steps of two seconds
	if when.Before(zipFirst) {
		when = zipFirst
	}
	var out bytes.Buffer
	zw := zip.NewWriter(&out)
	for _, f := range files {
		// The upper half holds Unix mode bits; 3 in the version field says so.
		header := &zip.FileHeader{
			Name:           f.name,
			Method:         zip.Deflate,
			Modified:       when,
			CreatorVersion: 3 << 8,
			ExternalAttrs:  uint32(0o100000|f.mode()) << 16,
		}
		w, err := zw.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
