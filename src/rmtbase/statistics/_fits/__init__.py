"""Laws fitted to the elements of a matrix by maximum likelihood."""

from rmtbase.statistics._fits._location_scale import LogisticFit, NormalFit, fit_logistic, fit_normal
from rmtbase.statistics._fits._student_t import StudentTFit, fit_student_t

__all__ = ["LogisticFit", "NormalFit", "StudentTFit", "fit_logistic", "fit_normal", "fit_student_t"]
